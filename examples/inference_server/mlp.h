/* A perceptron with two hidden layers, forward only: what the server serves. */
#ifndef EXAMPLES_INFERENCE_SERVER_MLP_H
#define EXAMPLES_INFERENCE_SERVER_MLP_H

#include <tutti/train.h>

#define TRY(expression)                                                                            \
	do {                                                                                       \
		tutti_status try_status_ = (expression);                                           \
		if (try_status_ != TUTTI_OK)                                                       \
			return try_status_;                                                        \
	} while (0)

enum { INPUTS = 128, HIDDEN = 1024, OUTPUTS = 32, LAYERS = 3, MOST_BATCH = 64 };

struct mlp {
	tutti_comm *alone;                          /* the model is this process's own */
	tutti_trainer *trainer;                     /* owns the parameters             */
	const float *weight[LAYERS], *bias[LAYERS]; /* weight[l]: [inputs][outputs] of layer l */
};

/* From a safetensors file; NULL: seeded values, the same in every process. */
tutti_status mlp_create(struct mlp *mlp, const char *file);
tutti_status mlp_export(const struct mlp *mlp, const char *file);
void mlp_destroy(struct mlp *mlp);
/* outputs[b][OUTPUTS] of inputs[b][INPUTS] for count requests, at most MOST_BATCH. The bits of an
 * output do not depend on the others. scratch: 2 * count * HIDDEN floats. */
void mlp_infer(const struct mlp *mlp, const float *const *inputs, float *const *outputs, int count,
	       float *scratch);

#endif
