# nothing of this module is called from Python: it offers C functions to its neighbours (see the
# .pxd)
