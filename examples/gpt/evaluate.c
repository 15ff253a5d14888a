/* The loss over the whole text, without training: windows side by side, so that each character but
 * the first is predicted once. */
#include "pipeline.h"

static int64_t windows_of(const struct run *run)
{
	return ((int64_t)run->text.count - 1) / run->options.length;
}

/* This rank's tokens and targets of one window. */
static void load_window(struct run *run, int64_t window, int row)
{
	size_t begin = (size_t)window * (size_t)run->options.length;
	int length = gpt_length(&run->gpt);

	for (int t = 0; t < length; t++) {
		size_t at = begin + (size_t)gpt_position(&run->gpt, t);
		run->tokens[row * length + t] = run->text.tokens[at];
		run->targets[row * length + t] = run->text.tokens[at + 1];
	}
}

/* All ranks make as many passes: those that gather parameters need each other. A pipeline takes one
 * window at a time; where this rank has none left, it takes the first again and does not count it.
 */
static double evaluate_pass(struct run *run, int64_t first, int count)
{
	double items = (double)count * gpt_length(&run->gpt);

	for (int i = 0; i < count; i++)
		load_window(run, first + i, i);
	if (run->stages && count == 0)
		load_window(run, 0, 0);
	must(tutti_micro_batch(run->trainer, TUTTI_PASS_EVAL, items, NULL));
	if (run->stages)
		stages_evaluate(run->stages);
	else
		gpt_forward(&run->gpt, run->tokens, count);
	if (count > 0 && run_has_head(run))
		gpt_loss(&run->gpt, run->targets, 0);
	return run_has_head(run) ? items : 0;
}

void evaluate_text(struct run *run)
{
	int most = run->stages ? 1 : run->gpt.config.max_sequences;
	int64_t windows = windows_of(run), step = (int64_t)most * run->parts;
	double items = 0, mean;

	for (int64_t first = 0; first < windows; first += step) {
		int64_t own = first + (int64_t)most * run->part;
		int64_t left = own < windows ? windows - own : 0;
		items += evaluate_pass(run, own, (int)(left < most ? left : most));
	}
	double loss = gpt_loss_sum(&run->gpt);
	must(tutti_means(run->trainer, &loss, &items, &mean, 1));
	if (run->losses)
		fprintf(run->losses, "%d %.9f\n", (int)run->done, mean);
	if (run->rank == 0)
		printf("test: loss %.9f over %lld characters, of the parameters after step %d\n",
		       mean, (long long)(windows * run->options.length), (int)run->done);
}
