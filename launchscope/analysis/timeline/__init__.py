"""What the host and the GPU did in each traced iteration."""
