"""Rolling windows: values that change as time passes, because rows are compared with the current time."""
