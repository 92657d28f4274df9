"""What a class needs to try the models: small data, a training loop, trained weights; built on torch and `models`."""
