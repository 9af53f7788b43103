"""Flight Recorder dumps: aligned tables, who waits for whom, where the streams part."""
