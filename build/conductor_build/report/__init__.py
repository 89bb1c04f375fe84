"""What an evaluation leaves behind: `report.json`, `report.md` and `frontier.png`.

document.py   the numbers as JSON, and where they come from
markdown.py   the same for people: one table a pool
frontier.py   the picture: accuracy over cost
lmdocument.py lmmarkdown.py    both for a language model, which has more to tell
write.py      all three into a folder, the JSON last
"""
