"""Many networks trained and asked as one."""
