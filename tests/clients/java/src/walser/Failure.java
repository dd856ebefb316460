package walser;

/** An expectation that did not hold. */
final class Failure extends RuntimeException {
    private static final long serialVersionUID = 1;

    Failure(String message) {
        super(message);
    }

    static void unless(boolean holds, String message) {
        if (!holds) {
            throw new Failure(message);
        }
    }
}
