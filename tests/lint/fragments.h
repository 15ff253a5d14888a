/* What the fragments of the pages leave out, for fragments.py: the program around them. */
#include <tutti/rpc.h>
#include <tutti/train.h>

#include <stdio.h>

#define TRY(call)                                  \
	do {                                       \
		tutti_status status_ = (call);     \
		if (status_ != TUTTI_OK)           \
			return status_;            \
	} while (0)

extern tutti_rpc *rpc;
extern tutti_rpc_piece x[1];
extern int samples, steps;
struct layer {
	tutti_rpc *rpc;
	int number;
	float *grad;
	size_t count;
};
void compute_gradients(struct layer *layer);
int train(void *arg);

#ifdef DATA_PARALLEL
enum { W };
extern struct point {
	float x;
} points[64];
extern float targets[64];
extern tutti_model *model;
extern tutti_optimizer sgd;
extern tutti_data_parallel *dp;
extern tutti_data_parallel_info info;
extern tutti_comm *comms[2];
void load(struct point *points, float *targets, int step);
tutti_status forward(tutti_replica *replica), loss(tutti_replica *replica);
#else
extern tutti_rpc_answer loss;
extern tutti_step_info info;
#endif
