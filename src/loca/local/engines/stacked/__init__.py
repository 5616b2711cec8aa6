"""Networks of one shape, trained and answering as one."""
