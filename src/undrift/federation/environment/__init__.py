"""How clients differ beyond their partition: label noise, feature skew by domains, augmentation, faults.

Import the modules by name (`from undrift.federation.environment import noise`). This file does not import torch.
"""
