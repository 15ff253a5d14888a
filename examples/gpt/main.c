/* Trains a small character-level GPT with Tutti, on one rank or many.
 *
 *     gpt                                   alone
 *     gpt --devices 4 my_text.txt           on four ranks that it starts itself
 *     tuttirun -n 4 gpt my_text.txt         on four ranks
 *     tuttirun -n 4 --max-restarts 9 --restart rank gpt
 *                                           on four ranks, of which nine may die
 *
 * The batch of a step is the same however many ranks share it: every sequence is drawn by its
 * number, and rank r of n takes its n-th part. Gradients are sums over characters and the trainer
 * divides them once by all characters of the step, so the loss is that of a single rank.
 *
 * The strategy is a number in the config, and nothing below depends on it.
 *
 * When a rank dies the others hear of it by the call they are in, and go on from the last step
 * that any of them has finished, with the rank that is started in its place: see regroup.c. Where a
 * rank's part of the state was nowhere else (zero1 to fsdp without --shadow), all go on from the
 * last checkpoint. A mesh (--tp, --pp, ...) goes on with as many whole replicas as there can be. */
#include "run.h"

#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- text, and its alphabet ---- */

static bool text_read_file(struct text *text, const char *path)
{
	enum { PIECE = 1 << 16 };
	FILE *file = fopen(path, "rb");
	size_t got = file ? 1 : 0;

	while (got > 0) {
		unsigned char *longer = realloc(text->tokens, text->count + PIECE);
		if (!longer)
			break;
		text->tokens = longer;
		text->count += got = fread(longer + text->count, 1, PIECE, file);
	}
	bool is_read = file && got == 0 && !ferror(file);
	if (!is_read)
		fprintf(stderr, "gpt: cannot read %s: %s\n", path, strerror(errno));
	if (file)
		fclose(file);
	return is_read;
}

/* A file, or all of a folder. Links there are left out: they mostly lead to its other files. */
static bool text_read_path(struct text *text, const char *path)
{
	struct dirent **names;
	struct stat what;
	int count = scandir(path, &names, NULL, alphasort);
	bool is_read = count >= 0 || text_read_file(text, path);

	for (int i = 0; i < count; i++) {
		char file[4096];
		snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
		if (is_read && lstat(file, &what) == 0 && S_ISREG(what.st_mode))
			is_read = text_read_file(text, file);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
	return is_read;
}

static void text_number_bytes(struct text *text)
{
	int token_of[GPT_MAX_VOCAB] = {0};

	for (size_t i = 0; i < text->count; i++)
		token_of[text->tokens[i]] = 1;
	for (int byte = 0; byte < GPT_MAX_VOCAB; byte++)
		if (token_of[byte]) {
			token_of[byte] = text->vocab;
			text->bytes[text->vocab++] = (unsigned char)byte;
		}
	for (size_t i = 0; i < text->count; i++)
		text->tokens[i] = (unsigned char)token_of[text->tokens[i]];
}

/* Reads files, or all files of folders in the order of their names, one after the other, and says
 * what is wrong: a file is not there or unreadable, or there are fewer than at_least bytes in all.
 */
static bool text_read(struct text *text, char *const *paths, int count, size_t at_least)
{
	for (int i = 0; i < count; i++)
		if (!text_read_path(text, paths[i]))
			return false;
	if (text->count < at_least) {
		fprintf(stderr,
			"gpt: the text has %zu bytes, too few: one sequence and its targets take "
			"%zu\n",
			text->count, at_least);
		return false;
	}
	text_number_bytes(text);
	return true;
}

/* ---- a run ---- */

/* Whether the run trains nothing. */
static bool main_is_test(const struct run *run)
{
	return run->options.flags.test[0] != '\0';
}

/* Ends the program, on all ranks alike. */
static void main_refuse(const struct run *run, const char *flag, const char *dir, const char *why)
{
	if (tutti_rank(run->comm) == 0)
		fprintf(stderr, "gpt: %s '%s'%s\n", flag, dir, why);
	exit(2);
}

/* Sets run->done; -1: there is no checkpoint. A token is the number of a character among those of
 * the text: of other ones the parameters know nothing. */
static void main_load_from(struct run *run, const char *flag, const char *dir)
{
	tutti_status status = tutti_load(run->next.trainer, dir, &run->done);

	if (status == TUTTI_ERR_INVALID && tutti_rank(run->comm) == 0)
		fprintf(stderr,
			"gpt: %s '%s' does not fit: a checkpoint is whole, and of a gpt with these "
			"options and the characters of this text, %d different ones\n",
			flag, dir, run->text.vocab);
	must(status);
	if (run->done >= 0 && memcmp(run->alphabet, run->text.bytes, sizeof run->alphabet) != 0)
		main_refuse(run, flag, dir,
			    " was trained on text of other characters: give that one, or one with "
			    "the same characters");
}

/* The newest checkpoint of where this job saves; of a job before only if that has none yet. */
static void main_load(struct run *run)
{
	const struct options *o = &run->options;
	bool is_test = main_is_test(run);
	const char *flag = is_test ? "--test" : "--resume";
	const char *from = is_test ? o->flags.test : o->flags.resume;

	run->done = -1;
	if (o->save && !is_test)
		main_load_from(run, "--save", o->save);
	if (run->done < 0 && from[0] && (is_test || strcmp(from, "auto") != 0)) {
		main_load_from(run, flag, from);
		if (run->done < 0)
			main_refuse(run, flag, from, ": there is no checkpoint");
	}
	run->done = run->done > 0 ? run->done : 0;
}

/* Where the trainer before has come to, or from a checkpoint. */
static void main_catch_up(struct run *run)
{
	tutti_status status = tutti_trainer_continue(run->next.trainer, run->trainer, &run->done);

	if (status == TUTTI_ERR_UNSUPPORTED) { /* parts died, and no checkpoint was saved yet */
		fprintf(stderr, "gpt: %s\n", tutti_comm_error(NULL));
		run->done = 0;
	} else {
		must(status);
	}
	if (run->done == 0)
		main_load(run);
}

/* A trainer on run->ranks that goes on from the last step that any rank has finished. */
static void main_start(struct run *run)
{
	const struct options *o = &run->options;
	const struct gpt_shape shape = {run->text.vocab, o->length,   o->layers,
					o->heads,        o->channels, o->experts};
	tutti_model *model;
	int sequences = (o->batch + run->parts - 1) / run->parts;
	const struct gpt_config config = {
		.max_sequences = (sequences + o->micro_batches - 1) / o->micro_batches,
		.dtype = o->flags.config.param_dtype,
		.group = o->expert_group,
		.capacity = o->expert_capacity,
		.balance = o->expert_balance,
		.recompute = o->recompute,
		.weights_later = o->pp > 1 && o->schedule == TUTTI_ZERO_BUBBLE};

	must(tutti_model_create(&model));
	gpt_register(&run->next.gpt, shape, o->pp * o->chunks, model);
	memcpy(run->alphabet, run->text.bytes, sizeof run->alphabet);
	must(tutti_model_state(model, "alphabet", run->alphabet, sizeof run->alphabet, 0));
	tutti_status status = run->next.mesh
				      ? tutti_trainer_create_on(&run->next.trainer, model,
								run->next.mesh, &o->flags.config)
				      : tutti_trainer_create(&run->next.trainer, model, run->comm,
							     &o->flags.config);
	tutti_model_destroy(model);
	must(status);
	gpt_start(&run->next.gpt, run->next.trainer, run->next.mesh, &config);
	main_catch_up(run);
	regroup_drop(run);
	run->gpt = run->next.gpt;
	run->trainer = run->next.trainer;
	run->mesh = run->next.mesh;
	run->next = (struct attempt){0};
	run->tokens = realloc(run->tokens, (size_t)sequences * (size_t)o->length);
	run->targets = realloc(run->targets, (size_t)sequences * (size_t)o->length);
	if (o->pp > 1)
		run->stages = stages_create(run);
	if (!main_is_test(run))
		train_start_log(run);
}

static void main_introduce(const struct run *run)
{
	const struct options *o = &run->options;

	if (run->rank != 0 || (run->done > 0 && !run->is_later && !main_is_test(run)))
		return;
	if (run->is_later)
		printf("goes on at step %d on %d rank%s\n", (int)run->done, run->size,
		       run->size > 1 ? "s" : "");
	else
		printf("a GPT of %zu parameters, %zu characters of text, %d different ones\n"
		       "%d rank%s share%s %d sequences of %d characters a step\n",
		       gpt_param_count(&run->gpt), run->text.count, run->text.vocab, run->size,
		       run->size > 1 ? "s" : "", run->size > 1 ? "" : "s", o->batch, o->length);
	if (run->mesh)
		printf("in a mesh of dp=%d,ep=%d,cp=%d,pp=%d,tp=%d\n",
		       tutti_mesh_size(run->mesh, "dp"), tutti_mesh_size(run->mesh, "ep"),
		       tutti_mesh_size(run->mesh, "cp"), tutti_mesh_size(run->mesh, "pp"),
		       tutti_mesh_size(run->mesh, "tp"));
}

static void main_work(struct run *run)
{
	main_start(run);
	main_introduce(run);
	if (main_is_test(run)) {
		train_evaluate(run);
	} else {
		train(run);
		train_sample(run);
		must(tutti_check_replicas(run->trainer));
		uint64_t fingerprint = gpt_fingerprint(&run->gpt);
		if (run->rank == 0)
			printf("parameters are the same to the bit on %d rank%s, fingerprint "
			       "%016llx\n",
			       run->size, run->size > 1 ? "s" : "",
			       (unsigned long long)fingerprint);
	}
	must(tutti_save_wait(run->trainer));
	if (run->options.export_to && !main_is_test(run))
		must(tutti_export_safetensors(run->trainer, run->options.export_to));
	if (run->metrics)
		must(tutti_metrics_flush(run->metrics));
	regroup_tell_spares(run, true);
}

/* A loss file that is not whole is worse than none. */
static int main_close_losses(struct run *run)
{
	if (!run->losses)
		return 0;
	bool was_written = !ferror(run->losses);
	int error = fclose(run->losses);

	run->losses = NULL;
	if (error == 0 && was_written)
		return 0;
	fprintf(stderr, "gpt: cannot write %s: %s\n", run->options.dump_loss, strerror(errno));
	return -1;
}

/* Of the ranks that train the first one has them. Returns 0, or -1 after saying why. */
static int main_open_losses(struct run *run)
{
	const char *name = run->options.dump_loss;

	if (run->rank != 0)
		return main_close_losses(run);
	if (!name || run->losses)
		return 0;
	run->losses = fopen(name, run->is_later ? "a" : "w");
	if (!run->losses)
		fprintf(stderr, "gpt: cannot write %s: %s\n", name, strerror(errno));
	else
		setvbuf(run->losses, NULL, _IOLBF, 0); /* what was written outlives this process */
	return run->losses ? 0 : -1;
}

/* A rank, from its begin to its exit code. */
static int main_run_rank(void *arg)
{
	struct run *run = arg;
	const struct options *o = &run->options;

	if (!text_read(&run->text, o->paths, o->path_count, (size_t)o->length + 1) ||
	    place_open(&run->options) != 0)
		return 2;
	regroup_join(run);
	jmp_buf died;
	if (setjmp(died))
		regroup(run);
	rescue = &died;
	bool has_place = regroup_take_place(run);
	if (main_open_losses(run) != 0)
		return 2;
	if (has_place)
		main_work(run);
	else
		regroup_stand_by(run);
	tutti_metrics_destroy(run->metrics);
	regroup_drop(run);
	tutti_comm_destroy(run->comm);
	free(run->text.tokens);
	free(run->tokens);
	free(run->targets);
	return main_close_losses(run) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	static struct run run;
	int code;

	if (!options_read(&run.options, argc, argv))
		return 2;
	tutti_status status = tutti_train_spawn(&run.options.flags, main_run_rank, &run, &code);
	if (status == TUTTI_OK && code == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
		fprintf(stderr, "gpt: the output could not be written\n");
		return 3;
	}
	if (status == TUTTI_OK)
		return code;
	fprintf(stderr, "gpt: %s\n", tutti_comm_error(NULL));
	return status == TUTTI_ERR_INVALID ? 2 : code;
}
