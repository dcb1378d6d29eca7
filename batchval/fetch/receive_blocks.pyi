# native callers alone use this module (see the .pxd)
