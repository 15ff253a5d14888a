/* Text, character by character. */
#include "pipeline.h"

#include <math.h>
#include <string.h>

enum { SAMPLE_STREAM = 1 << 30 };

/* Draws from softmax(scores / 0.7): the likely is a little likelier. */
static int sample_draw(const float *scores, int vocab, double uniform)
{
	double sum = 0, running = 0;

	for (int v = 0; v < vocab; v++)
		sum += exp((double)scores[v] / 0.7);
	for (int v = 0; v < vocab; v++) {
		running += exp((double)scores[v] / 0.7);
		if (running >= uniform * sum)
			return v;
	}
	return vocab - 1;
}

/* The window's tokens that this rank has. */
static void sample_show(struct run *run, const unsigned char *window)
{
	for (int t = 0; t < gpt_length(&run->gpt); t++)
		run->tokens[t] = window[gpt_position(&run->gpt, t)];
}

/* scores (vocab) of the token after a position: ranks that divide the model have parts of them. */
static void gather_scores(struct run *run, int position, float *scores)
{
	const struct gpt *gpt = &run->gpt;
	const struct split *split = &gpt->split;
	const float *logits = run_has_head(run) ? gpt_logits(gpt) : NULL;

	memset(scores, 0, (size_t)run->text.vocab * sizeof *scores);
	for (int t = 0; run_has_head(run) && t < gpt_length(gpt); t++)
		if (gpt_position(gpt, t) == position)
			memcpy(scores + split->first, logits + t * split->vocab,
			       (size_t)split->vocab * sizeof *scores);
	if (run->mesh)
		must(tutti_all_reduce(scores, scores, (size_t)run->text.vocab, TUTTI_F32, TUTTI_SUM,
				      tutti_mesh_comm(run->mesh, "pp,cp,tp"), NULL));
}

/* Every rank computes the same text, since a strategy that shards parameters needs them all; rank 0
 * prints it. The last tokens are the window; the rest of it is padding that causal attention never
 * looks at. */
void sample(struct run *run)
{
	int length = run->options.length, vocab = run->text.vocab, filled = 1;
	unsigned char window[GPT_MAX_LENGTH];
	float scores[GPT_MAX_VOCAB];

	if (run->options.sample == 0)
		return;
	memset(window, text_token(&run->text, '\n'), (size_t)length);
	if (run->rank == 0)
		printf("\nwhat it writes now:\n");
	for (int i = 0; i < run->options.sample; i++) {
		must(tutti_micro_batch(run->trainer, TUTTI_PASS_EVAL, 1, NULL));
		sample_show(run, window);
		if (run->stages)
			stages_evaluate(run->stages);
		else
			gpt_forward(&run->gpt, run->tokens, 1);
		gather_scores(run, filled - 1, scores);
		double uniform = tutti_random(run->options.seed, (uint64_t)i, SAMPLE_STREAM, 0) /
				 4294967296.0;
		int next = sample_draw(scores, vocab, uniform);
		if (run->rank == 0)
			putchar(run->text.bytes[next]);
		if (filled == length)
			memmove(window, window + 1, (size_t)length - 1);
		else
			filled++;
		window[filled - 1] = (unsigned char)next;
	}
	if (run->rank == 0)
		printf("\n\n");
}
