/* Text, character by character. */
#include "run.h"

#include <math.h>
#include <string.h>

enum { SAMPLE_STREAM = 1 << 30 };

/* Draws from softmax(scores / 0.7): the likely is a little likelier. */
static int draw(const float *scores, int vocab, double uniform)
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

/* Every rank computes the same text, since a strategy that shards parameters needs them all; rank 0
 * prints it. The last tokens are the window; the rest of it is padding that causal attention never
 * looks at. */
void sample(struct run *run)
{
	int length = run->options.length, vocab = run->text.vocab, filled = 1;
	unsigned char *window = run->tokens;

	if (run->options.sample == 0)
		return;
	memset(window, text_token(&run->text, '\n'), (size_t)length);
	if (run->rank == 0)
		printf("\nwhat it writes now:\n");
	for (int i = 0; i < run->options.sample; i++) {
		must(tutti_micro_batch(run->trainer, TUTTI_PASS_EVAL, 1, NULL));
		gpt_forward(&run->gpt, window, 1);
		double uniform = tutti_random(run->options.seed, (uint64_t)i, SAMPLE_STREAM, 0) /
				 4294967296.0;
		const float *scores = gpt_logits(&run->gpt) + (filled - 1) * vocab;
		int next = draw(scores, vocab, uniform);
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
