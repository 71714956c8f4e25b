"""Where the data lies: storage, parts, folders of files, the reader's side, flips and disposable state."""
