"""What reviews found, each with the test that keeps it mended; what holds for any problem, each with its property test."""

import re
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1] / "tests"
# What the review found in values, each by its case of one test.
_VALUES = (
    ("rank of inf", "rank of infinity"),
    ("rank of 1.5", "half a rank"),
    ("a sign error in FromLogDensity", "a loss for a log density"),
    ("active_dims=[5] on one column", "a column that is not there"),
    ("length scales of the wrong length", "length scales for other columns"),
    ("y of 1e300", "targets of 1e300"),
    ("one outlier of 1e200", "an outlier in a table"),
    ("datetime targets", "dates as targets"),
    ("masks are ignored", "masked inputs"),
    ("'no' counts as True", "a word for a truth value"),
    ("complex weights", "complex weights"),
    ("validation=(X, y, y) ignores the third", "three parts of validation"),
    ("negative variances in metrics", "negative variances"),
    ("steps=inf never ends", "endless training"),
    ("a network of NaN", "a network of NaN"),
    ("weights of NaN", "weights of NaN"),
    ("a prior mean of NaN", "a mean of NaN"),
    ("a variance of 1e30", "a variance of 1e30"),
    ("networks that return tuples", "a network of tuples"),
    ("networks that return integers", "a network of integers"),
    ("train(prior=None)", "no prior"),
    ("steps that are not whole", "steps of a table"),
    ("memory_budget=inf", "no memory limit"),
    ("jitter as one number", "one number for the jitter"),
    ("Poisson counts above 2^31", "counts above 2^31"),
    ("a checkpoint in a missing directory", "a checkpoint in no directory"),
)  # fmt: skip
FINDINGS: tuple[tuple[str, str, str], ...] = (
    *((what, "test_bad_input.py", f"test_what_would_give_a_meaningless_result_is_refused_with_a_sentence[{case}]") for what, case in _VALUES),
    ("a constant network has variance 0", "test_bad_input.py", "test_a_network_that_ignores_its_weights_has_the_prior_s_variance_and_is_not_to_be_used"),
    ("checkpoint of another activation, mean, density, schedule", "training/test_checkpoint.py", "test_a_checkpoint_of_other_functions_is_refused"),
    ("flipped bits in a checkpoint", "training/test_checkpoint.py", "test_every_flipped_bit_is_refused"),
    ("step counter of -5", "training/test_checkpoint.py", "test_a_step_that_the_run_does_not_have_is_refused"),
    ("checkpoint of another shape", "training/test_checkpoint.py", "test_arrays_of_another_shape_are_refused_by_name"),
    ("checkpoint with NaN weights or an order of rows that is none", "training/test_checkpoint.py", "test_numbers_that_no_run_writes_are_refused"),
    ("predict TYPO falls back to the parent directory", "test_cli.py", "test_a_mistyped_model_is_never_another_one"),
    ("an integer for missed_as_noise eats memory", "test_io_checks.py", "test_a_field_of_another_type_is_refused_before_anything_is_built_of_it"),
    ("huge widths in model.json", "test_cli.py", "test_a_description_that_was_changed_and_sealed_again_is_refused"),
    ("posteriors of methods are not checked", "test_io_checks.py", "test_a_posterior_of_a_method_is_checked_too"),
    ("NaN is saved and loaded", "test_io_checks.py", "test_numbers_that_are_not_finite_are_neither_saved_nor_loaded"),
    ("unknown fields are accepted", "test_io_checks.py", "test_what_nobody_knows_is_refused"),
    ("no signature", "test_io_checks.py", "test_a_signed_file_is_read_with_its_secret_only"),
    ("wrong keys, NumPy integers, bfloat16, torch with grad, under jit", "test_arguments.py", "test_an_annotation_says_what_is_accepted"),
    ("a new function forgets its checks", "test_arguments.py", "test_every_public_callable_is_checked"),
    ("164 of 646 calls end in an obscure error", "test_trust.py", "test_no_wrong_value_is_met_with_silence_or_an_obscure_error"),
    ("counts without bound", "test_arguments.py", "test_counts_that_no_machine_holds_are_refused_with_what_fits"),
    ("full disk", "host/test_files.py", "test_a_disk_that_is_full_leaves_the_old_file_and_nothing_else"),
    ("CSV: long fields, semicolons, 1_000, comments, empty names", "test_cli.py", "test_a_bad_table_is_one_sentence_that_names_the_place"),
    ("sealed model.json: missing keys, negative widths", "test_cli.py", "test_a_description_that_was_changed_and_sealed_again_is_refused"),
    ("sealed model.json: deep nesting", "test_cli.py", "test_a_deeply_nested_description_is_one_sentence"),
    ("Ctrl-C says what is not true", "test_cli.py", "test_an_interrupt_says_what_is_kept"),
    ("Ctrl-C takes a whole chunk", "training/test_train.py", "test_an_interrupt_is_heard_within_a_chunk"),
    ("ASCII locale, closed pipe", "test_cli.py", "test_other_locales_and_closed_pipes_are_no_errors"),
    ("--seed -1", "test_cli.py", "test_a_seed_that_is_none_is_refused"),
    ("--out DIR", "test_cli.py", "test_places_that_cannot_be_written_are_found_before_the_work"),
    ("data verify stops at the first missing set", "test_cli.py", "test_verify_goes_through_all_sets_and_names_a_command"),
    ("0600 over 0664", "host/test_files.py", "test_a_file_that_is_replaced_keeps_its_permissions"),
    ("0644 under umask 077", "host/test_files.py", "test_a_new_file_has_what_the_umask_leaves"),
    ("symbolic links are replaced", "host/test_files.py", "test_a_link_is_followed"),
    (".part files stay", "host/test_files.py", "test_what_a_killed_writer_left_is_removed_by_the_next"),
    ("joblib's fork backend deadlocks", "test_long_runs.py", "test_a_fit_in_a_forked_process_is_refused_instead_of_waiting_forever"),
    ("the disk is not synced before the rename", "host/test_files.py", "test_the_bytes_are_on_the_disk_before_the_name_and_the_name_at_the_end"),
    ("two writers on one file", "host/test_files.py", "test_of_many_writers_one_wins_whole"),
    ("a damaged export is not noticed", "test_export.py", "test_a_flipped_bit_is_seen_before_the_program_is_read"),
    ("checkpoint of other methods, constants, globals, attributes", "training/test_checkpoint.py", "test_the_fingerprint_of_other_functions_is_another"),
    ("a device or a pipe is replaced by a file", "host/test_files.py", "test_a_device_or_a_pipe_is_never_replaced_by_a_file"),
    ("a write-protected file is replaced", "host/test_files.py", "test_a_write_protected_file_is_kept"),
    ("Ctrl-C in every other command", "test_cli.py", "test_an_interrupt_of_data_is_no_traceback"),
    ("Ctrl-C within the first second, while libraries are imported", "test_cli.py", "test_an_interrupt_of_the_imports_is_one_sentence"),
    ("predict '' takes the model of the current directory", "test_cli.py", "test_a_name_that_is_empty_is_not_the_current_directory"),
    ("predict and studio write over the table that they read", "test_cli.py", "test_what_is_read_is_never_replaced"),
    ("predict writes over the model that it reads", "test_cli.py", "test_a_model_is_not_replaced_by_its_predictions"),
    ("fit writes over files that no fit wrote", "test_cli.py", "test_a_fit_replaces_nothing_that_no_fit_wrote"),
    ("a box of 1e300, of no width, of two shapes", "test_context.py", "test_impossible_regions_are_refused"),
    ("predictions, draws and scores in a fork deadlock", "test_long_runs.py",
     "test_a_fit_in_a_forked_process_is_refused_instead_of_waiting_forever"),
    ("whole numbers beyond 32 bits are cut in scores and covariances", "test_arguments.py", "test_whole_numbers_beyond_32_bits_are_not_cut"),
    ("arrays of big-endian or 80-bit numbers", "test_arguments.py", "test_numbers_that_jax_cannot_read_as_they_are_come_in_as_it_can"),
    ("logits and percentages scored as probabilities", "test_metrics.py", "test_what_are_no_probabilities_is_refused"),
    ("operators that draw, or give truth values or nothing", "test_operators.py", "test_an_operator_that_cannot_work_is_refused_by_name"),
    ("an array times an operator is an array of operators", "test_operators.py", "test_an_array_times_an_operator_is_one_operator"),
    ("an operator times None, NaN; over zero, over an operator", "test_operators.py", "test_bad_arguments_are_refused"),
    ("a set, a range, a dict as X: 'batch 0'", "laplace/test_data.py", "test_what_is_neither_array_nor_batches_is_named"),
    ("errors of foreign arrays come out of estimators as they are", "estimators/test_regressor.py",
     "test_what_another_library_says_of_its_own_arrays_is_said_with_the_argument"),
    ("memory maps of many sizes", "test_long_runs.py", "test_programs_are_dropped_before_the_maps_run_out"),
)  # fmt: skip


PROPERTIES: tuple[tuple[str, str, str], ...] = (
    ("the posterior variance lies between 0 and the prior's", "test_properties.py", "test_the_posterior_variance_lies_between_zero_and_the_prior_s"),
    ("conditioning never raises the variance; evidences add up", "test_properties.py",
     "test_conditioning_never_raises_the_variance_and_evidences_add_up"),
    ("the order of rows changes nothing", "test_properties.py", "test_the_order_of_the_rows_changes_nothing"),
    ("duplicated rows are weights", "test_properties.py", "test_a_row_twice_is_a_row_with_half_the_noise_variance"),
    ("duplicated rows are weights, any likelihood", "estimators/test_weighted.py", "test_a_weight_is_a_number_of_observations"),
    ("units of y", "test_properties.py", "test_units_of_the_targets_change_units_only"),
    ("units of x", "test_properties.py", "test_units_of_the_inputs_change_nothing"),
    ("batch sizes", "test_properties.py", "test_predictions_do_not_depend_on_the_batch"),
    ("float32 against float64", "test_properties.py", "test_float32_agrees_with_float64"),
    ("save and load are the identity", "test_properties.py", "test_a_posterior_with_other_numbers_is_loaded_bit_by_bit"),
    ("moments of samples", "test_properties.py", "test_samples_have_the_posterior_s_moments"),
    ("other likelihoods, networks and sizes", "test_properties.py", "test_other_likelihoods_networks_and_sizes_stay_below_the_prior"),
)  # fmt: skip


def missing() -> list[str]:
    """Tests that the lists name and the suite has not."""
    return [f"{file}::{test}" for _, file, test in (*FINDINGS, *PROPERTIES) if not _exists(_TESTS / file, test)]


def _exists(file: Path, test: str) -> bool:
    """Whether a file has a test, and the case that is named in brackets."""
    name, _, case = test.removesuffix("]").partition("[")
    text = file.read_text() if file.exists() else ""
    return re.search(rf"^def {name}\(", text, re.MULTILINE) is not None and (not case or f'"{case}": (' in text)
