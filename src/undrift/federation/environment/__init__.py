"""What can be wrong with or different about clients beyond who holds what: label noise, domains, augmentation.

The modules are imported by name (`from undrift.federation.environment import noise`); nothing here imports torch by itself.
"""
