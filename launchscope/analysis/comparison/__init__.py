"""Several Profiles side by side: sizes, strategies, ranks, differences."""
