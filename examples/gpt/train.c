/* What the program does with a model: steps of training, an evaluation, and a sample. */
#include "run.h"

#include <math.h>
#include <string.h>
#include <time.h>

static double train_seconds_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* This rank's tokens and targets of the sequence that begins at text. */
static void train_load(struct run *run, int sequence, const unsigned char *text)
{
	int length = run->gpt.context.length;

	for (int t = 0; t < length; t++) {
		int at = gpt_position(&run->gpt, t);
		run->tokens[sequence * length + t] = text[at];
		run->targets[sequence * length + t] = text[at + 1];
	}
}

/* This rank's sequences of the step's batch. */
static int train_load_batch(struct run *run, int step)
{
	const struct options *o = &run->options;
	int first = (int)((int64_t)o->batch * run->part / run->parts);
	int last = (int)((int64_t)o->batch * (run->part + 1) / run->parts);
	size_t places = run->text.count - (size_t)o->length;

	for (int i = first; i < last; i++) {
		uint32_t drawn = tutti_random(o->seed, (uint64_t)step, 0, (uint64_t)i);
		train_load(run, i - first, run->text.tokens + drawn % places);
	}
	return last - first;
}

/* Rises for 20 steps, then falls to nothing along a half cosine. */
static float train_rate(const struct options *o, int step)
{
	float done = (float)step / (float)o->steps;
	float rise = step < 20 ? (float)(step + 1) / 20 : 1;

	return o->lr * rise * (0.5f + 0.5f * cosf(3.14159265f * done));
}

/* All micro-batches of a step: returns the number of this rank's characters. */
static double train_pass(struct run *run, int step)
{
	int64_t sequences = train_load_batch(run, step), parts = run->options.micro_batches;
	int length = run->gpt.context.length;

	if (run->stages) {
		must(tutti_micro_batch(run->trainer, TUTTI_PASS_LAST, (double)(sequences * length),
				       NULL));
		stages_run(run->stages, (int)sequences);
	}
	for (int m = 0; m < parts && !run->stages; m++) {
		int first = (int)(sequences * m / parts);
		int count = (int)(sequences * (m + 1) / parts) - first;
		size_t row = (size_t)first * (size_t)length;
		must(tutti_micro_batch(run->trainer,
				       m + 1 < parts ? TUTTI_PASS_ACCUMULATE : TUTTI_PASS_LAST,
				       (double)count * length, NULL));
		gpt_forward(&run->gpt, run->tokens + row, count);
		gpt_loss(&run->gpt, run->targets + row, 1);
		gpt_backward(&run->gpt);
	}
	return (double)(sequences * length);
}

void train_start_log(struct run *run)
{
	const tutti_metrics_config config = {.dir = run->options.log};

	tutti_metrics_destroy(run->metrics);
	run->metrics = NULL;
	if (!run->options.log)
		return;
	must(tutti_metrics_create(&run->metrics, run->ranks, &config));
	run->loss_metric =
		must_index(tutti_metrics_declare(run->metrics, "loss", TUTTI_METRIC_MEAN));
	run->norm_metric =
		must_index(tutti_metrics_declare(run->metrics, "grad_norm", TUTTI_METRIC_LAST));
	run->rate_metric =
		must_index(tutti_metrics_declare(run->metrics, "learning_rate", TUTTI_METRIC_LAST));
}

/* Whether this rank has the last stage. */
static bool train_has_head(const struct run *run)
{
	return tutti_mesh_coord(run->mesh, "pp") + 1 == tutti_mesh_size(run->mesh, "pp");
}

/* Returns the mean loss of the global batch. */
static double train_step(struct run *run, int step)
{
	const struct options *o = &run->options;
	const tutti_optimizer adamw = {.kind = TUTTI_ADAMW,
				       .lr = train_rate(o, step),
				       .beta1 = 0.9f,
				       .beta2 = 0.99f,
				       .eps = 1e-8f,
				       .weight_decay = 0.1f};
	tutti_step_info info;
	double mean, items = train_pass(run, step);

	must(tutti_step(run->trainer, &adamw, 1, &info));
	double loss = gpt_loss_sum(&run->gpt); /* waits for a GPU's update */
	if (!train_has_head(run))              /* the last stage's counts */
		items = 0;
	if (info.skipped && run->rank == 0)
		printf("%s\n", tutti_comm_error(NULL));
	run->done = step + 1;
	must(tutti_means(run->trainer, &loss, &items, &mean, 1));
	if (run->losses)
		fprintf(run->losses, "%d %.9f\n", step, mean);
	if (run->metrics) {
		must(tutti_metrics_add(run->metrics, run->loss_metric, loss, items));
		must(tutti_metrics_add(run->metrics, run->norm_metric, (double)info.grad_norm, 1));
		must(tutti_metrics_add(run->metrics, run->rate_metric, (double)adamw.lr, 1));
		must(tutti_metrics_step(run->metrics, step));
	}
	if (o->save && (run->done % o->save_every == 0 || run->done == o->steps))
		must(tutti_save(run->trainer, o->save, run->done));
	return mean;
}

static double train_waited(const struct run *run)
{
	tutti_train_stats stats;
	must(tutti_trainer_stats(run->trainer, &stats));
	return stats.exposed_seconds;
}

void train(struct run *run)
{
	const struct options *o = &run->options;
	double since = train_seconds_now(), waited_since = train_waited(run);
	int reported = (int)run->done - 1;

	for (int step = (int)run->done; step < o->steps; step++) {
		regroup_tell_spares(run, false);
		double loss = train_step(run, step);
		if (step % o->report_every != 0 && step + 1 != o->steps)
			continue;
		double now = train_seconds_now(), waited_now = train_waited(run);
		double tokens = (double)(step - reported) * o->batch * o->length;
		if (run->rank == 0)
			printf("step %4d   loss %.4f   %6.0f tokens/s   %4.1f %% waiting for "
			       "ranks\n",
			       step, loss, tokens / (now - since),
			       100 * (waited_now - waited_since) / (now - since));
		fflush(stdout);
		since = now;
		waited_since = waited_now;
		reported = step;
	}
}

/* The scores of count sequences, or of a pipeline of one. All ranks make as many passes: those that
 * gather parameters need each other. */
static void train_forward(struct run *run, int count, double items)
{
	must(tutti_micro_batch(run->trainer, TUTTI_PASS_EVAL, items, NULL));
	if (run->stages)
		stages_evaluate(run->stages);
	else
		gpt_forward(&run->gpt, run->tokens, count);
}

/* Of windows side by side, so that each character but the first is predicted once. A pipeline takes
 * one at a time; where this rank has none left, it takes the first again and does not count it. */
void train_evaluate(struct run *run)
{
	int most = run->stages ? 1 : run->gpt.config.max_sequences, length = run->options.length;
	int64_t windows = ((int64_t)run->text.count - 1) / length;
	double items = 0, mean;

	for (int64_t i = 0; i < windows; i += (int64_t)most * run->parts) {
		int64_t first = i + (int64_t)most * run->part;
		int64_t left = first < windows ? windows - first : 0;
		int count = (int)(left < most ? left : most);
		double own = (double)count * run->gpt.context.length;
		if (run->stages && count == 0)
			train_load(run, 0, run->text.tokens);
		for (int w = 0; w < count; w++)
			train_load(run, w, run->text.tokens + (first + w) * length);
		train_forward(run, count, own);
		if (count > 0 && train_has_head(run)) {
			gpt_loss(&run->gpt, run->targets, 0);
			items += own;
		}
	}
	double loss = gpt_loss_sum(&run->gpt);
	must(tutti_means(run->trainer, &loss, &items, &mean, 1));
	if (run->losses)
		fprintf(run->losses, "%d %.9f\n", (int)run->done, mean);
	if (run->rank == 0)
		printf("test: loss %.9f over %lld characters, of the parameters after step %d\n",
		       mean, (long long)(windows * length), (int)run->done);
}

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

/* scores (vocab) of the token after a position: ranks that divide the model have parts of them. */
static void sample_scores(struct run *run, int position, float *scores)
{
	const struct gpt *gpt = &run->gpt;
	const struct split *split = &gpt->split;
	const float *logits = train_has_head(run) ? gpt_logits(gpt) : NULL;

	memset(scores, 0, (size_t)run->text.vocab * sizeof *scores);
	for (int t = 0; logits && t < gpt->context.length; t++)
		if (gpt_position(gpt, t) == position)
			memcpy(scores + split->first, logits + t * split->vocab,
			       (size_t)split->vocab * sizeof *scores);
	if (run->mesh)
		must(tutti_all_reduce(scores, scores, (size_t)run->text.vocab, TUTTI_F32, TUTTI_SUM,
				      tutti_mesh_comm(run->mesh, "pp,cp,tp"), NULL));
}

/* Every rank computes the same text, since a strategy that shards parameters needs them all. The
 * last tokens are the window, which begins with an end of line; the rest of it is padding that
 * causal attention never looks at. */
void train_sample(struct run *run)
{
	enum { STREAM = 1 << 30 };
	const struct options *o = &run->options;
	int length = o->length, filled = 1;
	const unsigned char *line = memchr(run->text.bytes, '\n', (size_t)run->text.vocab);
	unsigned char window[GPT_MAX_LENGTH + 1];
	float scores[GPT_MAX_VOCAB];

	memset(window, line ? (int)(line - run->text.bytes) : 0, sizeof window);
	if (run->rank == 0 && o->sample > 0)
		printf("\nwhat it writes now:\n");
	for (int i = 0; i < o->sample; i++) {
		train_load(run, 0, window);
		train_forward(run, 1, 1);
		sample_scores(run, filled - 1, scores);
		double uniform = tutti_random(o->seed, (uint64_t)i, STREAM, 0) / 4294967296.0;
		int next = sample_draw(scores, run->text.vocab, uniform);
		if (run->rank == 0)
			putchar(run->text.bytes[next]);
		if (filled == length)
			memmove(window, window + 1, (size_t)length - 1);
		else
			filled++;
		window[filled - 1] = (unsigned char)next;
	}
	if (run->rank == 0 && o->sample > 0)
		printf("\n\n");
}
