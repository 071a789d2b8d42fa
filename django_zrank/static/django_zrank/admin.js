"use strict";
// Renews the list of jobs while one of them is open. Without this script, reloading the page does.
{
  const INTERVAL = 1000;

  const renew = async () => {
    const jobs = document.getElementById("zrank-jobs");
    if (!jobs || !("open" in jobs.dataset)) return;
    try {
      const answer = await fetch(jobs.dataset.url, { headers: { "X-Requested-With": "XMLHttpRequest" } });
      if (answer.status >= 500) throw new Error("away");
      if (!answer.ok || answer.redirected) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("zrank-jobs");
      if (!fresh) return;
      say(jobs, fresh);
      jobs.replaceWith(fresh);
    } catch {
      // The server is away: try again.
    }
    setTimeout(renew, INTERVAL);
  };

  // A screen reader is told once that a job is finished, and not of every row of its progress.
  const say = (before, after) => {
    for (const job of before.querySelectorAll('[data-state="open"]')) {
      const now = after.querySelector(`[data-job="${job.dataset.job}"][data-state="finished"]`);
      if (now) {
        const [kind, , state] = now.children;
        document.getElementById("zrank-said").textContent = `${kind.textContent}: ${state.textContent.replace(/[●▲\s]+/g, " ").trim()}`;
      }
    }
  };

  setTimeout(renew, INTERVAL);
}
