"""What the data is: config, identity, table schemas, snapshots, errors. Imports nothing else of ours."""
