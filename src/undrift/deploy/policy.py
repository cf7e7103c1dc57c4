def least_samples(told: int) -> int:
    return told - max(9, told // 10)
