"""A gate as a process: assembled from settings, reloaded, handed over, stopped; HTTP pages."""
