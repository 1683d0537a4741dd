"""One Spark session for a Floodway process, and the Java that it runs on."""
