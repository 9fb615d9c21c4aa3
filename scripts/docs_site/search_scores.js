// Part of the script of the search page.

// The lines below a result are read from its page, which a browser allows to no page opened as a file.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// Guides and reference first: records of decisions, listings of files and project pages come last.
// Of a page and its section the section comes first.
var Scorer = {
  score: ([page, , anchor, , score]) =>
    (/^(decisions|files|project)\//.test(page) ? score / 20 : score) + (anchor ? 0.01 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
