"""The data sets known by name: their files, readers, classes, normalisation and licences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from undrift.data import decode
from undrift.data.cache import Arrays
from undrift.data.decode import DIGITS
from undrift.data.download import Download
from undrift.data.find import Files

Read = Callable[[list[Path]], Arrays]

RESEARCH = "none stated; research use"
COLOUR = (3, 32, 32)
LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True)
class Entry:
    """One data set. `shape` is the shape of a sample, `classes` the names in label order (None: in the files)."""

    shape: tuple[int, ...]
    classes: tuple[str, ...] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    licence: str
    source: str
    files: Files
    read: Read
    note: str = ""
    download: Download | None = None
    task: str = "classification"


IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
FASHION = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BALANCED = (*DIGITS, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *"abdefghnqrt")
CIFAR10_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")

MNIST_SUMS = (
    (IDX[0], "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    (IDX[1], "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    (IDX[2], "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    (IDX[3], "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)
FASHION_SUMS = (
    (IDX[0], "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
    (IDX[1], "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
    (IDX[2], "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
    (IDX[3], "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
)
CIFAR10_SUMS = (
    (CIFAR10_FILES[0], "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    (CIFAR10_FILES[1], "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    (CIFAR10_FILES[2], "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    (CIFAR10_FILES[3], "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    (CIFAR10_FILES[4], "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    (CIFAR10_FILES[5], "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
)


def _emnist(split: str, classes: tuple[str, ...], mean: float, std: float, read: Read) -> Entry:
    names = tuple(
        f"emnist-{split}-{part}-{kind}-ubyte" for part in ("train", "test") for kind in ("images-idx3", "labels-idx1")
    )
    return Entry(
        (1, 28, 28), classes, (mean,), (std,), "public domain (NIST Special Database 19)",
        "https://www.nist.gov/itl/products-and-services/emnist-dataset",
        Files(("EMNIST/raw", "EMNIST/raw/gzip", "emnist", "gzip", "."), names), read,
    )  # fmt: skip


def _npz(
    file: str,
    classes: tuple[str, ...] | None,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    source: str,
    note: str,
    shape: tuple[int, ...] = COLOUR,
    licence: str = RESEARCH,
) -> Entry:
    return Entry(shape, classes, mean, std, licence, source, Files((".",), (file,)), decode.npz_set, note)


ENTRIES: dict[str, Entry] = {
    "mnist": Entry(
        (1, 28, 28), DIGITS, (0.1307,), (0.3081,), "CC BY-SA 3.0", "http://yann.lecun.com/exdb/mnist/",
        Files(("MNIST/raw", "mnist", "MNIST"), IDX), decode.idx_set,
        download=Download("http://yann.lecun.com/exdb/mnist/", "MNIST/raw", MNIST_SUMS),
    ),
    "fashion-mnist": Entry(
        (1, 28, 28), FASHION, (0.2860,), (0.3530,), "MIT", "https://github.com/zalandoresearch/fashion-mnist",
        Files(
            ("FashionMNIST/raw", "fashion-mnist", "FashionMNIST"), IDX,
            system=("/usr/share/dataset-fashion-mnist", "/usr/share/datasets/fashion-mnist"),
        ),
        decode.idx_set,
        download=Download(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", "FashionMNIST/raw", FASHION_SUMS
        ),
    ),
    "emnist-letters": _emnist("letters", LETTERS, 0.1722, 0.3309, decode.letters_set),
    "emnist-balanced": _emnist("balanced", BALANCED, 0.1751, 0.3332, decode.emnist_set),
    "emnist-letters10": _emnist("letters", LETTERS[:10], 0.1722, 0.3309, decode.letters10_set),
    "cifar-10": Entry(
        COLOUR, CIFAR10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), RESEARCH,
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        Files(("cifar-10-batches-bin", "cifar-10"), CIFAR10_FILES), decode.cifar10_set,
        download=Download(
            "https://www.cs.toronto.edu/~kriz/", "cifar-10-batches-bin", CIFAR10_SUMS, "cifar-10-binary.tar.gz"
        ),
    ),
    "cifar-100": Entry(
        COLOUR, None, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), RESEARCH,
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        Files(("cifar-100-binary", "cifar-100"), ("train.bin", "test.bin")), decode.cifar100_set,
    ),
    "cifar-100-subset": _npz(
        "cifar100_subset.npz", None, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762),
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "80 + 20 images of each class: do not compare with published CIFAR-100",
    ),
    "svhn": Entry(
        COLOUR, DIGITS, (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970), "non-commercial use only",
        "http://ufldl.stanford.edu/housenumbers/",
        Files(("svhn", "SVHN", "."), ("train_32x32.mat", "test_32x32.mat")), decode.svhn_set,
    ),
    "svhn-subset": _npz(
        "svhn_subset.npz", DIGITS, (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970),
        "http://ufldl.stanford.edu/housenumbers/",
        "the first 7,000 + 2,000 digits, re-cropped: do not compare with published SVHN",
        licence="non-commercial use only",
    ),
    "mnist-m-subset": _npz(
        "mnistm_subset.npz", DIGITS, (0.4590, 0.4628, 0.4091), (0.2491, 0.2331, 0.2557),
        "Ganin, Lempitsky and others 2015", "the first 4,000 of 59,001 and the first 1,000 of 9,001 images",
    ),
    "usps": _npz(
        "usps.npz", DIGITS, (0.2545,), (0.3846,), "Hull 1994; LeCun and others 1989",
        "16×16 digits of The Elements of Statistical Learning", shape=(1, 16, 16),
    ),
    "pacs32": _npz(
        "pacs32.npz", None, (0.7636, 0.7433, 0.7147), (0.2834, 0.2938, 0.3240), "Li, Yang, Song, Hospedales 2017",
        "all 9,991 images reduced from 227×227 to 32×32, our own 80/20 split",
    ),
    "office-caltech10-32": _npz(
        "office_caltech10_32.npz", None, (0.6759, 0.6697, 0.6656), (0.3173, 0.3186, 0.3232),
        "Gong and others 2012, from Office-31 and Caltech-256",
        "all 2,533 images reduced to 32×32, our own 80/20 split",
    ),
}  # fmt: skip
