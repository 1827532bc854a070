"""The kernels, one family a file. Each file declares ``KERNELS``; the package's registry lists the files."""
