# nothing here is called from Python: C functions for other modules (see the .pxd)
