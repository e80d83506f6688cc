"""The pages of the terminal UI, as lines of data. Pure: nothing here knows a widget."""
