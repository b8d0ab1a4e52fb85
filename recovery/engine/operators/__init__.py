"""What operators do to what runs or is broken: `restart`, `abort`, the settings they `override` at run time, and
`forget` for an actor that is gone. Each checks what it is given, and is done again where somebody was cut off.
"""
