/* The gate of a mixture of experts: which experts a token goes to, and with which weight. */
#ifndef EXAMPLES_GPT_GATE_H
#define EXAMPLES_GPT_GATE_H

#include "experts.h"

/* Fills chances, chosen, places and sent of n rows. */
void gate_choose(const struct experts *experts, struct expert_memory *memory, const float *in,
		 const float *weight, int n);
/* The weight of choice i of n * EXPERTS_CHOSEN: its chance among those that the token chose. */
float gate_weight(const struct experts *experts, const struct expert_memory *memory, int i);

struct gate_backward {
	const float *out_grad, *in, *weight;
	float *weight_grad;
	float grad_scale;
	float *scores_grad, *scratch;   /* (n, count); as linear_backward's */
};
/* in_grad (n, channels): of the gate alone */
void gate_go_back(const struct experts *experts, float *in_grad, const struct expert_memory *memory,
		  const struct gate_backward *gate, int n);

#endif
