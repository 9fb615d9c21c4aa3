// Guides and reference first: records of decisions, listings of files and project pages come last.
var Scorer = {
  score: ([page, , , , score]) => (/^(decisions|files|project)\//.test(page) ? score / 20 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
