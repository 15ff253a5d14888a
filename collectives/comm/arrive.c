/* How ranks make a communicator at a rendezvous, in rounds. After each round all know whether all
 * can go on, and if not, why. For the ranks of tutti_init, and those of a job that grows. */
#include "collectives/comm/join.h"
#include "collectives/engine/engine.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/outcome.h"

#include <stdio.h>
#include <stdlib.h>

/* A rank's message in a round. */
struct arrival_report {
	struct outcome outcome;
	uint32_t has; /* comm_has */
	int32_t has_links, parent_rank;
	struct links links;
};

/* True if all ranks have it, and the median of their measurements. */
struct common_result {
	uint32_t has;
	bool links;
	struct links median;
};

static tutti_status arrive_judge_reports(const struct tutti_comm *comm,
					 const struct arrival_report *all)
{
	int cause = outcome_cause(&all[0].outcome, sizeof *all, comm->size, NULL, 0);

	return cause < 0 ? TUTTI_OK : outcome_fail(&all[cause].outcome, cause, "");
}

/* room: for as many links and doubles as there are ranks. */
static void arrive_sum_up(const struct tutti_comm *comm, const struct arrival_report *all,
			  struct links *room, struct common_result *c)
{
	size_t n = (size_t)comm->size;
	*c = (struct common_result){HAS_ALL, true, links_default()};
	for (int r = 0; r < comm->size; r++) {
		c->has &= all[r].has;
		c->links &= all[r].has_links;
		room[r] = all[r].links;
	}
	links_median(&c->median, room, comm->size, (double *)(room + n));
	links_round(&c->median);
}

/* Of ranks that were in a communicator that grew: known once the engine runs, in the last round. */
static tutti_status arrive_note_parents(struct tutti_comm *comm, const struct arrival_report *all)
{
	size_t n = (size_t)comm->size;
	bool any = false;

	for (size_t r = 0; r < n; r++)
		any |= all[r].parent_rank >= 0;
	if (!any || !comm->engine || comm->parent.ranks)
		return TUTTI_OK;
	comm->parent.ranks = malloc(n * sizeof *comm->parent.ranks);
	if (!comm->parent.ranks)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for %zu ranks", comm->rank, n);
	for (size_t r = 0; r < n; r++)
		comm->parent.ranks[r] = all[r].parent_rank;
	return TUTTI_OK;
}

static tutti_status arrive_agree(struct tutti_comm *comm, struct rendezvous *meeting,
				 tutti_status status, struct common_result *common,
				 uint64_t deadline)
{
	struct arrival_report mine = {.has = comm_has(comm),
				      .has_links = comm->has_links,
				      .parent_rank = comm->parent.rank,
				      .links = comm->select.links};
	size_t n = (size_t)comm->size;
	struct arrival_report *all = calloc(n, sizeof *all);
	struct links *links = calloc(n, sizeof *links + sizeof(double));
	tutti_status met = TUTTI_ERR_MEMORY;
	if (!all || !links)
		fail(met, "rank %d: no memory to join", comm->rank);
	else {
		outcome_set(&mine.outcome, status);
		met = rendezvous_all_gather(meeting, &mine, sizeof mine, all, deadline);
	}
	if (met == TUTTI_OK)
		met = arrive_judge_reports(comm, all);
	if (met == TUTTI_OK) {
		arrive_sum_up(comm, all, links, common);
		met = arrive_note_parents(comm, all);
	}
	free(all);
	free(links);
	return met;
}

/* Ranks of a node that cannot open their window go on without one, together. */
static tutti_status arrive_open_window(struct tutti_comm *comm, struct rendezvous *meeting,
				       uint64_t deadline)
{
	struct common_result all;

	comm_open_window(comm, deadline, NULL, NULL);
	TRY(arrive_agree(comm, meeting, TUTTI_OK, &all, deadline));
	comm->has_links = all.links;
	comm_keep(comm, all.has);
	return TUTTI_OK;
}

/* Links are measured unless the ranks share memory, where no message goes, or all of them found
 * their speeds in TUTTI_LINKS. */
static tutti_status arrive_measure(struct tutti_comm *comm)
{
	if (comm->window || comm->has_links || comm->size == 1)
		return TUTTI_OK;
	TRY(measure_links(comm, &comm->select.links));
	engine_forget_stats(comm->engine);
	return TUTTI_OK;
}

static void arrive_keep_links(struct tutti_comm *comm, const struct links *agreed)
{
	char key[256];
	if (comm->settings.env.links && *comm->settings.env.links && !comm->has_links &&
	    !comm->window && comm->place.local_rank == 0)
		links_append(agreed, comm->settings.env.links, measure_key(comm, key, sizeof key));
	select_prepare(&comm->select, agreed);
}

/* A file that cannot be used is an error, whether or not links are measured in the end. */
tutti_status arrive_describe(struct tutti_comm *comm, struct member *member)
{
	TRY(comm_describe(comm, member));
	return comm->settings.env.links ? links_check(comm->settings.env.links) : TUTTI_OK;
}

static tutti_status arrive_meet(struct tutti_comm *comm, struct rendezvous *meeting,
				uint64_t deadline)
{
	struct member mine, *all = calloc((size_t)comm->size, sizeof *all);
	struct common_result unused;
	if (!all)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory to join", comm->rank);
	rendezvous_identity(meeting, comm->identity.key, comm->identity.id);
	tutti_status status = arrive_describe(comm, &mine);
	/* A rank that cannot go on says so in the first round, and why in the second. */
	tutti_status agreed = arrive_agree(comm, meeting, status, &unused, deadline);
	if (agreed == TUTTI_OK)
		agreed = rendezvous_all_gather(meeting, &mine, sizeof mine, all, deadline);
	if (agreed == TUTTI_OK) {
		status = comm_meet(comm, all);
		agreed = arrive_agree(comm, meeting, status, &unused, deadline);
	}
	free(all);
	TRY(agreed);
	char key[256];
	comm->has_links = comm->settings.env.links && *comm->settings.env.links &&
			  links_read(&comm->select.links, comm->settings.env.links,
				     measure_key(comm, key, sizeof key));
	return arrive_open_window(comm, meeting, deadline);
}

static tutti_status arrive_finish(struct tutti_comm *comm, uint64_t deadline)
{
	TRY(comm_start(comm));
	TRY(comm_connect(comm, deadline, NULL, NULL));
	return arrive_measure(comm);
}

static void arrive_leave(struct arrival *arrival)
{
	rendezvous_leave(arrival->meeting, arrival->deadline);
	arrival->meeting = NULL;
}

tutti_status comm_arrive(struct tutti_comm *comm, const struct job *job, int parent_rank,
			 struct arrival *arrival)
{
	uint64_t deadline = deadline_after_ms(comm->settings.timeout_ms);
	struct common_result all;

	*arrival = (struct arrival){NULL, deadline};
	TRY(comm_keep_origin(comm, job));
	TRY(rendezvous_join(&arrival->meeting, job, &comm->settings.env, deadline));
	comm->parent.rank = parent_rank;
	tutti_status status = arrive_meet(comm, arrival->meeting, deadline);
	if (status == TUTTI_OK) {
		status = arrive_finish(comm, deadline);
		if (status != TUTTI_OK)
			comm_close(comm); /* the others need not wait for this rank */
		status = arrive_agree(comm, arrival->meeting, status, &all, deadline);
		if (status == TUTTI_OK)
			arrive_keep_links(comm, &all.median);
	}
	if (status != TUTTI_OK)
		arrive_leave(arrival);
	return status;
}

tutti_status comm_conclude(struct tutti_comm *comm, struct arrival *arrival, tutti_status decided)
{
	char message[ERROR_BYTES];
	struct common_result unused;

	if (!arrival->meeting)
		return decided;
	snprintf(message, sizeof message, "%s", decided == TUTTI_OK ? "" : last_error());
	tutti_status status = TUTTI_OK;
	if (comm->parent.ranks)
		status = arrive_agree(comm, arrival->meeting, decided, &unused, arrival->deadline);
	arrive_leave(arrival);
	if (comm->parent.rank < 0)
		return status;
	/* The decision of the old ranks stands, even if one has died since. */
	if (status != TUTTI_OK)
		log_info("the new ranks may not have heard of it: %s", last_error());
	return decided == TUTTI_OK ? decided : fail(decided, "%s", message);
}
