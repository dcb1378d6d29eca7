# nothing of this module is for Python: it offers C functions to native callers (see the .pxd)
