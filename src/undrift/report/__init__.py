"""Pages and figures of recorded runs and of federations. Everything here reads records and changes nothing."""
