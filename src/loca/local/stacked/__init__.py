"""Many networks trained and used as one."""
