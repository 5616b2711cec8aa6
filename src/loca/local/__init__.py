"""Many local models at once, and how their answers become one."""
