"""The loop of a running network: look, steer, write down."""
