"""Pairs of answers in prose to one question each, written by hand: which say the same?

The threshold `encoder.ALIKE` was chosen on this table. The pairs that differ are the hard kind:
about the same things, with another conclusion.
"""

from __future__ import annotations

SAME = (
    (
        "Plants make their food from sunlight, water and carbon dioxide, and give off oxygen.",
        "Using light, plants turn water and carbon dioxide into sugar and release oxygen.",
    ),
    (
        "You should restart the router first and then check the cable.",
        "First restart your router; after that, have a look at the cable.",
    ),
    (
        "The French Revolution began in 1789 because the state was bankrupt and bread was dear.",
        "In 1789 a bankrupt state and the high price of bread led to the French Revolution.",
    ),
    (
        "A binary search halves the range at each step, so it needs a logarithmic number of steps.",
        "Each step of binary search cuts the range in half, which makes it logarithmic.",
    ),
    (
        "The sky looks blue because air scatters short wavelengths more than long ones.",
        "Air molecules scatter blue light more strongly than red light, so the sky appears blue.",
    ),
    (
        "Vaccines train the immune system to recognise a germ before it meets the real one.",
        "By showing the immune system a harmless form of a germ, vaccines prepare it for the germ.",
    ),
    (
        "The contract can be ended by either party with three months' notice.",
        "Both parties may terminate the agreement, giving notice of three months.",
    ),
    (
        "Inflation means that prices in general rise and money buys less.",
        "When prices rise overall and your money buys fewer goods, that is inflation.",
    ),
    (
        "Store the tomatoes at room temperature, because cold spoils their taste.",
        "Tomatoes should be kept at room temperature, since the cold takes away their flavour.",
    ),
    (
        "He was late because the train had broken down.",
        "His train broke down, and therefore he arrived late.",
    ),
    (
        "Use a dictionary: looking up a key takes constant time on average.",
        "A dictionary is the right choice, since key lookup is constant time on average.",
    ),
    (
        "The moon causes the tides by pulling on the water of the oceans.",
        "Tides are caused by the gravity of the moon, which pulls on the oceans.",
    ),
)

DIFFERENT = (
    (
        "Plants make their food from sunlight, water and carbon dioxide, and give off oxygen.",
        "Plants take their food out of the soil with their roots and breathe oxygen.",
    ),
    (
        "You should restart the router first and then check the cable.",
        "Call your provider and have the line measured, the router is surely fine.",
    ),
    (
        "The French Revolution began in 1789 because the state was bankrupt and bread was dear.",
        "The French Revolution was set off by the execution of the king by foreign troops.",
    ),
    (
        "A binary search halves the range at each step, so it needs a logarithmic number of steps.",
        "A binary search looks at every element once, so it needs a linear number of steps.",
    ),
    (
        "The sky looks blue because air scatters short wavelengths more than long ones.",
        "The sky looks blue because it reflects the colour of the oceans.",
    ),
    (
        "Vaccines train the immune system to recognise a germ before it meets the real one.",
        "Vaccines kill the germs that are already in the body, as antibiotics do.",
    ),
    (
        "The contract can be ended by either party with three months' notice.",
        "The contract runs for a fixed term and cannot be ended by either party before.",
    ),
    (
        "Inflation means that prices in general rise and money buys less.",
        "Inflation is the tax that the state takes on imported goods.",
    ),
    (
        "Store the tomatoes at room temperature, because cold spoils their taste.",
        "Put the tomatoes in the refrigerator, where they keep for two weeks.",
    ),
    (
        "He was late because the train had broken down.",
        "He was late because he had overslept.",
    ),
    (
        "Use a dictionary: looking up a key takes constant time on average.",
        "Use a sorted list and search it from the front until the key is found.",
    ),
    (
        "The moon causes the tides by pulling on the water of the oceans.",
        "The tides come from the wind, which drives the water against the coast.",
    ),
)
