/* TF_CONFIG: which rank we are among the chief and the workers, and where rank 0 is. Parameter
 * servers and evaluators are no ranks. */
#include "core/join/launcher.h"

#include "core/json_text.h"
#include "core/status.h"
#include "core/words/netaddr.h"

#include <stdio.h>
#include <string.h>

#define ADDRESS_BYTES 280

struct cluster {
	int chiefs, workers;
	const char *first_chief, *first_worker;
	uint32_t hash; /* of who is where */
};

/* FNV-1a of place, added up: the order of "chief" and "worker" in the text means nothing. */
static uint32_t tf_config_hash_of(const char *list, int index, const char *address)
{
	char place[ADDRESS_BYTES + 48];
	uint32_t hash = 2166136261u;

	snprintf(place, sizeof place, "%s %d %s", list, index, address);
	for (const char *at = place; *at; at++)
		hash = (hash ^ (uint8_t)*at) * 16777619u;
	return hash;
}

/* NULL, or what is wrong. */
static const char *tf_config_check_address(const char *text)
{
	char host[sizeof((struct job *)0)->host];
	int port;

	if (!text)
		return "is not a string";
	return strlen(text) < ADDRESS_BYTES ? netaddr_read(text, host, sizeof host, &port)
					    : "is too long";
}

/* Of cluster.chief or cluster.worker, which may be missing. */
static tutti_status tf_config_read_list(struct cluster *c, const json_t *cluster, const char *list,
					int *count, const char **first)
{
	const json_t *addresses = json_object_get(cluster, list);
	size_t n = json_array_size(addresses);

	if (addresses && !json_is_array(addresses))
		return fail(TUTTI_ERR_INVALID,
			    "TF_CONFIG's cluster.%s is not a list of \"host:port\"", list);
	if (n > WORLD_MAX)
		return fail(TUTTI_ERR_INVALID,
			    "TF_CONFIG's cluster.%s has %zu entries: a world has %d ranks at most",
			    list, n, WORLD_MAX);
	for (size_t i = 0; i < n; i++) {
		const char *text = json_string_value(json_array_get(addresses, i));
		const char *why = tf_config_check_address(text);
		if (why)
			return fail(TUTTI_ERR_INVALID,
				    "TF_CONFIG's cluster.%s names \"%.100s\" where host:port is "
				    "expected (entry %zu): it %s",
				    list, text ? text : "?", i, why);
		if (i == 0)
			*first = text;
		c->hash += tf_config_hash_of(list, (int)i, text);
	}
	*count = (int)n;
	return TUTTI_OK;
}

static tutti_status tf_config_read_cluster(struct cluster *c, const json_t *cluster)
{
	if (cluster && !json_is_object(cluster))
		return fail(TUTTI_ERR_INVALID, "TF_CONFIG's cluster is not an object");
	TRY(tf_config_read_list(c, cluster, "chief", &c->chiefs, &c->first_chief));
	TRY(tf_config_read_list(c, cluster, "worker", &c->workers, &c->first_worker));
	if (c->chiefs > 1)
		return fail(TUTTI_ERR_INVALID, "TF_CONFIG names %d chiefs: there is one at most",
			    c->chiefs);
	if (c->chiefs + c->workers == 0)
		return fail(TUTTI_ERR_INVALID, "TF_CONFIG has no cluster.worker: it lists the "
					       "host:port of every rank");
	return TUTTI_OK;
}

static tutti_status tf_config_read_task(const struct cluster *c, const json_t *task, int *rank)
{
	const char *type = json_string_value(json_object_get(task, "type"));
	const json_t *number = json_object_get(task, "index");
	json_int_t index = json_integer_value(number);
	bool is_chief;
	int count;

	if (!type)
		return fail(TUTTI_ERR_INVALID, "TF_CONFIG has no task.type: which rank is this?");
	is_chief = strcmp(type, "chief") == 0;
	if (!is_chief && strcmp(type, "worker") != 0)
		return fail(TUTTI_ERR_INVALID,
			    "TF_CONFIG's task.type is \"%.30s\": only chief and worker are ranks",
			    type);
	if (!json_is_integer(number) || index < 0)
		return fail(TUTTI_ERR_INVALID,
			    "TF_CONFIG has no task.index, a number from 0: which rank is this?");
	count = is_chief ? c->chiefs : c->workers;
	if (index >= count)
		return fail(TUTTI_ERR_INVALID,
			    "TF_CONFIG's task.index is %lld, but cluster.%s has %d entries",
			    (long long)index, type, count);
	*rank = (int)index + (is_chief ? 0 : c->chiefs);
	return TUTTI_OK;
}

static tutti_status tf_config_read_config(struct job *job, const json_t *config)
{
	struct cluster c = {0};
	int rank = 0;

	TRY(tf_config_read_cluster(&c, json_object_get(config, "cluster")));
	TRY(tf_config_read_task(&c, json_object_get(config, "task"), &rank));
	job->rank = rank;
	job->size = c.chiefs + c.workers;
	job->hosts = c.hash ? c.hash : 1;
	netaddr_read(c.chiefs ? c.first_chief : c.first_worker, job->host, sizeof job->host,
		     &job->port);
	return TUTTI_OK;
}

tutti_status tf_config_read(struct job *job, const char *text)
{
	char why[200];
	json_t *config = json_text_read(text, strlen(text), why);
	tutti_status status;

	if (!config)
		return fail(TUTTI_ERR_INVALID, "TF_CONFIG is no JSON object: %s", why);
	status = tf_config_read_config(job, config);
	json_decref(config);
	return status;
}
