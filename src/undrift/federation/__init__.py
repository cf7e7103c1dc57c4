"""Which client holds which samples: federations, how data are dealt to clients, and what is made different on purpose."""
