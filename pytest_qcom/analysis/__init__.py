"""What can be said about a program without running it: occupancy, hazards, time."""
