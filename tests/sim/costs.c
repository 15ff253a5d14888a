/* What a message costs: the links' alpha and beta, and which of them, or of the ports, are taken.
 */
#include "tests/sim/internal.h"

static uint64_t whole(double ns)
{
	return ns > 0 ? (uint64_t)(ns + 0.5) : 0;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void sim_cost_of_link(const struct sim *sim, struct sim_link *link)
{
	const struct sim_config *config = &sim->config;
	bool is_local = sim->ranks[link->from].node == sim->ranks[link->to].node;

	link->alpha_ns = is_local ? config->local_alpha_ns : config->alpha_ns;
	link->beta_ns = is_local ? config->local_beta_ns : config->beta_ns;
}

uint64_t sim_cost_ns(const struct sim_link *link, size_t bytes)
{
	return whole(link->alpha_ns + (double)bytes * link->beta_ns);
}

static uint64_t bytes_ns(const struct sim_link *link, size_t bytes)
{
	return whole((double)bytes * link->beta_ns);
}

uint64_t sim_cost_depart_ns(struct sim *sim, struct sim_stream *stream, size_t bytes)
{
	struct sim_link *link = stream->link;
	uint64_t at = sim->now_ns;

	if (sim->config.order == SIM_TIMED && sim->config.has_ports) {
		uint64_t *until_ns = &sim->ranks[link->from].sends_until_ns;
		at = later(at, *until_ns);
		*until_ns = at + bytes_ns(link, bytes);
		at += whole(link->alpha_ns);
	} else if (sim->config.order == SIM_TIMED) {
		at = later(at, link->busy_until_ns) + bytes_ns(link, bytes);
		link->busy_until_ns = at;
		at += whole(link->alpha_ns);
	}
	at = later(at + link->delay_ns, stream->last_arrival_ns);
	link->delay_ns = 0;
	return stream->last_arrival_ns = at;
}

uint64_t sim_cost_land_ns(struct sim *sim, const struct sim_stream *stream,
			  const struct sim_message *m)
{
	uint64_t *until_ns = &sim->ranks[stream->link->to].receives_until_ns;

	return *until_ns = later(m->arrives_ns, *until_ns) + bytes_ns(stream->link, m->bytes);
}
