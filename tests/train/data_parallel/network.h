/* A small network for tests of replicas, and its training by every way: in one rank or several with
 * a trainer's own loop (DDP), by DataParallel and by Mirrored. */
#ifndef TESTS_TRAIN_DATA_PARALLEL_NETWORK_H
#define TESTS_TRAIN_DATA_PARALLEL_NETWORK_H

#include <tutti/train.h>

#include <stdbool.h>

enum {
	NET_IN = 3,
	NET_HIDDEN = 16,
	NET_OUT = 2,
	NET_ITEMS = 64,
	NET_PARAMS = 4, /* of which the last one is frozen */
	NET_COUNT = NET_IN * NET_HIDDEN + NET_HIDDEN * NET_OUT + NET_OUT + NET_OUT,
	NET_TRAINED = NET_COUNT - NET_OUT,
};

/* arg of the functions: what forward keeps for backward, by item of the batch. */
struct network {
	float hidden[NET_ITEMS][NET_HIDDEN];
	int fails_in;            /* 1 forward, 2 loss, 3 backward; 0: nowhere */
	int fails_at;            /* the replica */
	const char *why;         /* NULL: without a message */
	int is_bf16;             /* parameters are */
	int is_infinite;         /* 1: the loss has an infinite gradient, of its last item */
	int is_killed;           /* 1: the process ends in backward of replica 1, by SIGKILL */
	tutti_data_parallel *dp; /* forward makes a call on it, if not NULL */
	int calls[3];            /* of replica 0: forward, loss, backward */
};

struct net_batch {
	float inputs[NET_ITEMS][NET_IN], targets[NET_ITEMS][NET_OUT];
};
void net_batch(struct net_batch *batch, int step, int items);

/* The caller destroys the model. */
tutti_model *net_model(void);
/* Functions, sizes and arg; the caller sets model and train. */
tutti_data_parallel_config net_config(struct network *network);
/* First values, the same everywhere: for tutti_data_parallel_run. */
tutti_status net_init(tutti_trainer *trainer, int replica, void *arg);
/* All parameters one after the other, of replica 0: values of NET_COUNT floats. */
tutti_status net_read(tutti_trainer *trainer, int replica, void *values);

/* Replicas of ranks that are threads. The case fails if they cannot be made. */
struct net_replicas {
	tutti_data_parallel *dp;
	tutti_comm *comms[4];
	int n;
};
/* Destroys the config's model; NULL: net_model(). */
void net_start(struct net_replicas *replicas, bool is_mirrored, int n,
	       const tutti_data_parallel_config *config);
void net_stop(struct net_replicas *replicas);

/* A trainer's own loop, in one rank: a step over items [first, last) of the batch. Returns the mean
 * loss of all ranks. */
double net_ddp_step(tutti_trainer *trainer, struct network *network, const struct net_batch *batch,
		    const int part[2], const tutti_optimizer *optimizer);

#endif
