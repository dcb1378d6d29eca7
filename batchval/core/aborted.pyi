# nothing of this module is called from Python: it offers C functions to other modules (its .pxd)
