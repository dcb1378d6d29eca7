# nothing of this module is called from Python
