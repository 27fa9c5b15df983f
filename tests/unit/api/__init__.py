"""The public interface, one fact a test, by somebody who knows only its names and its promises."""
